"""The OAuth front door: an authorization server for the gateway's clients, opt-in.

1. An issuer, or an API key, only says who somebody is; clients get tokens of this gateway.
2. Nothing is stored before a person has signed in and decided; see `consent`.
3. An access token points to an authorization, a row that every gateway of the database follows.
"""
