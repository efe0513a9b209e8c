"""Values that a careless shell would take apart."""

from __future__ import annotations

from hypothesis import strategies as st

# Prints its arguments with NULs between them; `python3 -S -E -c` starts it fast.
ECHO = "import os, sys; sys.stdout.buffer.write(b'\\0'.join(map(os.fsencode, sys.argv[1:])))"

EVERY_KIND = [
    "plain", "two words", " ", "", "it's", '"quoted"', "''", "$HOME", "${HOME}", "$(reboot)", "`id`", "a;b", "a && b", "|",
    "&", ">out", "<in", "*", "?", "[a-z]", "{a,b}", "~", "~root", "!!", "!", "#", "\\", "\\\\n", "\n", "new\nline", "\r", "\t",
    "\x01", "\x7f", "-rf", "--", "--help", "-", "=ls", "A=b", "%s", "%n", "ü–é→日", "\U0001f680", "\u202e", "x" * 5000,
]  # fmt: skip
_PIECES = st.sampled_from([*" '\";$()`\\\n\t-!*?~&|<>#{}[]%=é→日\r", "$(reboot)", "--", "${HOME}", "\U0001f680"])
TEXTS = st.one_of(
    st.lists(_PIECES, max_size=12).map("".join),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30),
)
VALUES = st.lists(TEXTS, max_size=5)
