"""Recognizes requests whose answers need no facts: small talk, and requests to invent a text.

Only these requests reach the model, because it would invent the facts in any other answer.
"""

from __future__ import annotations

import re

LONGEST = 200  # characters; a longer request is not small talk

# In English, German, French and Spanish.
_PHRASES = (
    r"hi|hello|hey|howdy|hiya|there|good (?:morning|afternoon|evening|night|day)|welcome(?: back)?",
    r"thanks|thank you|thx|a lot|so much|very much|cheers|please|sorry|ok|okay|yes|no|great|cool",
    r"nice(?: to meet you)?|well done|good (?:job|work)|bye|goodbye|good bye|have a nice day|too",
    r"see you(?: later| soon| tomorrow| then)?|how are you(?: doing)?(?: today)?|how do you do",
    r"what'?s up|(?:i|we) (?:feel|am feeling)(?: [a-z']+){1,5}|i'm (?:fine|happy|sad|tired|bored)",
    r"hallo|guten (?:morgen|tag|abend)|gute nacht|servus|moin|grüezi|grüß (?:gott|dich|euch)|ja",
    r"danke(?: schön| sehr)?|vielen dank|bitte|tschüss|auf wiedersehen|bis (?:bald|morgen|später)",
    r"wie geht'?s(?: dir| ihnen)?(?: heute)?|wie geht es (?:dir|ihnen)(?: heute)?|nein|super|toll",
    r"bonjour|bonsoir|salut|coucou|merci(?: beaucoup| bien)?|au revoir|à (?:bientôt|demain)|oui",
    r"ça va|comment (?:ça va|vas-tu|allez-vous)|bonne (?:nuit|journée|soirée)|non|enchanté",
    r"hola|buen(?:os|as) (?:días|tardes|noches)|(?:muchas )?gracias|adiós|hasta (?:luego|mañana)",
    r"qué tal|cómo est(?:ás|á)|por favor|sí",
)
_SMALL_TALK = re.compile(rf"(?:(?:{'|'.join(_PHRASES)})(?:[\s,.;:!?¡¿…]+|$))+", re.IGNORECASE)
_MADE_UP = re.compile(
    r"(?:please |can you |could you |kannst du |bitte |peux-tu |puedes )*"
    r"(?:write|tell|make up|compose|invent|schreib|erzähl|dichte|écri|raconte|escrib|cuénta)"
    r"[^\d]{0,40}\b(?:poem|story|joke|haiku|limerick|song|rhyme|fairy tale|riddle|gedicht"
    r"|geschichte|witz|märchen|lied|rätsel|poème|histoire|blague|chanson|conte|poema|historia"
    r"|chiste|cuento)\b[^\d]*",
    re.IGNORECASE,
)
# A made-up text about the present would state facts.
_PRESENT = re.compile(
    r"\b(?:now|today|current|currently|latest|news|jetzt|heute|aktuell|gerade|maintenant"
    r"|aujourd'hui|actuel|ahora|hoy|actual)",
    re.IGNORECASE,
)
_ABOUT = re.compile(
    r"(?:so |and |und |et |y )?(?:who|what) are you|what can you do|what do you do|help(?: me)?"
    r"|what (?:model|kind of model) are you|wer bist du|was (?:bist|kannst) du|hilfe|qui es-tu"
    r"|que (?:peux-tu|sais-tu) faire|aide|quién eres|qué puedes hacer|ayuda",
    re.IGNORECASE,
)


def is_talk(request: str) -> bool:
    """Return whether a request can be answered without facts."""
    text = request.strip()
    if len(text) > LONGEST:
        return False
    if _SMALL_TALK.fullmatch(text):
        return True
    return _MADE_UP.fullmatch(text) is not None and _PRESENT.search(text) is None


def is_about_the_model(request: str) -> bool:
    """Return whether the user asks what the model is or can do."""
    return _ABOUT.fullmatch(request.strip().strip("?!.¿¡ ")) is not None
