"""That the test can fail: what the proxy with holes (vulnerable.py) must be found guilty of, and what it does right."""

# It leaks these: behind nginx, which answers without waiting for bodies, and behind the recorder.
LEAKS = ("upgrade-cl-no-body", "upgrade-cl-huge", "upgrade-capital", "r-second-answer-cl", "r-second-answer-chunked",
         "r-junk-cl",
         "r-half-answer", "r-empty-and-second", "r-head-body", "r-204-body", "r-304-body", "r-close-ignored",
         "r-interim-100",
         "r-interim-103", "r-cl-list", "r-cl-te")
# It passes these on as they are.
AMBIGUOUS = ("cl-different", "cl-list-different", "cl-plus", "te-cl", "host-twice", "chunk-end-xx",
             "line-two-spaces", "upgrade-te")
# It does these right: the test does not always cry.
FINE = ("cl-hidden", "cl-half", "cl-smaller", "cl-0-hidden", "get-pipelined", "host-port", "half-and-end",
        "r-head-length")
ROWS = LEAKS + AMBIGUOUS + FINE


def judge(cells):
    """Prints what was not found, or found where nothing is; the exit code."""
    wrong = [f"{name} is no row" for name in set(ROWS) - {cell.row.name for cell in cells}]
    for cell in cells:
        found = cell.problem or "nothing"
        if cell.row.name in LEAKS and cell.verdict != "LEAK":
            wrong.append(f"{cell.row.name} leaks, and was not found to: {found}")
        elif cell.row.name in AMBIGUOUS and not cell.problem:
            wrong.append(f"{cell.row.name} is ambiguous, and was not found to be")
        elif cell.row.name in FINE and cell.problem:
            wrong.append(f"{cell.row.name} is right, and was found to be {found}")
    for text in wrong:
        print(f"FAIL  self-test: {text}")
    print(f"the proxy with holes: {len(LEAKS)} leaks, {len(AMBIGUOUS)} ambiguous and {len(FINE)} right rows, "
          f"{len(wrong)} not found as they are")
    return 1 if wrong else 0
