"""`flopwatch top`: what a daemon tells, in a terminal.

`daemon` asks for the page and the status document, `reading` takes from them what is shown, `views`
draws it with rich, `screen` is the terminal with its keys. Nothing is derived here: what the daemon
does not tell is not shown.
"""
