"""The one error a person can cause: its text names the value, the choices and the way out."""


class UserError(ValueError):
    """A mistake in what was asked for; the command line prints it and exits with code 2."""
