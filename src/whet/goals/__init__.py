"""Goals: pursued round by round until they are proven."""
