"""Users' logins to servers and to the pages, and their credentials."""
