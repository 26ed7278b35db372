"""Tests the test: the mistakes that must be found in the vulnerable proxy, and the rows that it passes."""

# Rows with leaks: in front of nginx, which responds without waiting for bodies, and of the recorder.
LEAKS = ("upgrade-cl-no-body", "upgrade-cl-huge", "upgrade-capital", "r-second-answer-cl", "r-second-answer-chunked",
         "r-junk-cl",
         "r-half-answer", "r-empty-and-second", "r-head-body", "r-204-body", "r-304-body", "r-close-ignored",
         "r-interim-100",
         "r-interim-103", "r-cl-list", "r-cl-te")
# Rows that it forwards unchanged.
AMBIGUOUS = ("cl-different", "cl-list-different", "cl-plus", "te-cl", "host-twice", "chunk-end-xx",
             "line-two-spaces", "upgrade-te")
# Rows that it handles correctly: the test must not report these.
FINE = ("cl-hidden", "cl-half", "cl-smaller", "cl-0-hidden", "get-pipelined", "host-port", "half-and-end",
        "r-head-length")
ROWS = LEAKS + AMBIGUOUS + FINE


def judge(cells):
    """Prints missed and false findings; returns the exit code."""
    wrong = [f"{name} is not a row" for name in set(ROWS) - {cell.row.name for cell in cells}]
    for cell in cells:
        found = cell.problem or "nothing"
        if cell.row.name in LEAKS and cell.verdict != "LEAK":
            wrong.append(f"{cell.row.name} leaks, but the finding was: {found}")
        elif cell.row.name in AMBIGUOUS and not cell.problem:
            wrong.append(f"{cell.row.name} is ambiguous, but was not reported")
        elif cell.row.name in FINE and cell.problem:
            wrong.append(f"{cell.row.name} is correct, but was reported as {found}")
    for text in wrong:
        print(f"FAIL  self-test: {text}")
    print(f"the vulnerable proxy: {len(LEAKS)} leaks, {len(AMBIGUOUS)} ambiguous and {len(FINE)} correct rows, "
          f"{len(wrong)} wrong findings")
    return 1 if wrong else 0
