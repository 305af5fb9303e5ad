"""Whether a person's message corrects what was done: "no, ...", "that's wrong", "use X instead".

Words only, no model, and careful: a missed correction costs little, a false one costs a review. Questions,
new tasks and quoted logs are no corrections. It does not know what was done before.
"""

from __future__ import annotations

import re
from functools import cache

_HEAD_CHARS = 400

# What a correction opens with. After "no" something must follow that is no mere answer ("no", "no thanks").
_OPENS = r"""
    (?:hm+|oh|ok(?:ay)?|well|hey|sorry|but|ah|uh|so|still)?[\s,.!:-]*(?:
      no+(?:pe)?[\s,.!:;-]+(?!thanks|thank\b|problem|worries|need|idea|matter|more\b|longer|changes?\b|errors?\b)\w
    | no,\s
    | (?:that|this|it)(?:['’]?s|\s+is|\s+was)?\s+(?:just\s+|simply\s+|still\s+|all\s+)?
      (?:wrong|incorrect|not\s+(?:right|correct|true|it|what|how|the\s+(?:right|way|point))|broken\s+again)
    | (?:that|this)\s+(?:didn['’]?t|doesn['’]?t|won['’]?t|can['’]?t|isn['’]?t|wasn['’]?t)\b
    | not\s+(?:like\s+that|that\s+(?:one|file|way)|what\s+i|quite|this\s+one)
    | wrong\b(?!\s+number\s+of)
    | (?:please\s+)?(?:don['’]?t|do\s+not|never|stop)\s+(?!worry|know|think|mind|forget\s+to\s+be)\w+
    | you\s+(?:forgot|missed|misunderstood|misread|broke|ignored|skipped|deleted|didn['’]?t
      |should(?:n['’]?t|\s+have|\s+not))\b
    | i\s+(?:said|told\s+you|meant|asked\s+(?:you\s+)?(?:for|to|not)|already\s+(?:said|told)
      |didn['’]?t\s+(?:ask|mean|say|want))\b
    | (?:actually|rather)[\s,]+(?!can|could|would|how|what|why|when|where|is|are|do|does)\w
    | (?:please\s+)?(?:undo|revert|roll\s+back|take\s+back)\s+(?:that|this|it|your|the\s+last)\b
    | as\s+i\s+(?:said|told|mentioned)
    | (?:nein|nee|falsch|quatsch|doch\s+nicht|das\s+(?:ist|war|stimmt)\s+(?:falsch|nicht|so\s+nicht)
      |so\s+nicht|du\s+(?:hast|solltest)\s+(?:vergessen|nicht|das\s+nicht)|ich\s+(?:sagte|meinte|habe\s+gesagt)
      |bitte\s+(?:nie|nicht))\b
    | (?:non[\s,]+(?!merci)|c['’]est\s+faux|ce\s+n['’]est\s+pas|pas\s+comme\s+ça|j['’]ai\s+dit)
    | (?:no[\s,]+eso|eso\s+(?:no|está\s+mal)|está\s+mal|te\s+dije|no\s+es\s+(?:eso|así))\b
    | (?:不对|不是这样|错了|我说的是|別|别这样|違う|違います|そうじゃない|ちがう)
    )
    """
# What makes a correction wherever it stands in the first lines.
_HOLDS = r"""
      \b(?:use|run|call|do|put|write|try|take|read)\s+[^.?!\n]{1,80}\s(?:instead\b|not\s+(?:the\s+)?[`'"\w./-]+)
    | \binstead\s+of\s+(?:that|what\s+you|using|the\s+\w+\s+you)
    | \b(?:that|which)(?:['’]s|\s+is|\s+was)\s+(?:wrong|incorrect|not\s+what\s+i)
    | \b(?:from\s+now\s+on|in\s+(?:the\s+)?future|next\s+time)\b
    | \b(?:always|never)\s+(?:use|run|call|do|put|write|commit|push|touch|edit|add|ask|start|end)\b
    | \b(?:remember|note|keep\s+in\s+mind)\s*(?:that\b|:)
    | \bhow\s+(?:often|many\s+times)\s+(?:do|must|have)\s+i\b
    | \b(?:merk\s+dir|ab\s+jetzt|in\s+zukunft|immer\s+\w+\s+statt)\b
    """


def is_correction(text: str) -> bool:
    """Say whether a message takes back, forbids or replaces something, or states a rule for the future."""
    head = _own_words(text)[:_HEAD_CHARS].strip()
    if not head:
        return False
    first = head.split("\n\n", 1)[0]
    asks = first.rstrip().endswith("?") and "," not in first.split("?", 1)[0][:12]
    opens, holds = _patterns()
    return (not asks and opens.match(head) is not None) or holds.search(first) is not None


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Compile at the first message that is looked at: most one-shots have none, and it takes milliseconds."""
    flags = re.IGNORECASE | re.VERBOSE
    return re.compile(_OPENS, flags), re.compile(_HOLDS, flags)


def _own_words(text: str) -> str:
    """Leave out code blocks and quoted lines: a log that says "that is wrong" corrects nothing."""
    without_code = re.sub(r"```.*?(?:```|\Z)", " ", text[: 8 * _HEAD_CHARS], flags=re.DOTALL)
    return "\n".join(
        line for line in without_code.splitlines() if not line.lstrip().startswith((">", "|", "$"))
    )
