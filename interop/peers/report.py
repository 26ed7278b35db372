"""What a case finds, and how many were as they should be."""

import time
import traceback


class Failed(Exception):
    """What was wrong, in a sentence."""


def check(truth, message):
    if not truth:
        raise Failed(message)


class Report:
    def __init__(self):
        self.passed = self.failed = 0

    def case(self, name, function, *args):
        start = time.monotonic()
        problem = None
        try:
            function(*args)
        except Failed as error:
            problem = str(error)
        except Exception as error:  # a time limit, a peer that broke: the case failed, the others go on
            problem = f"{type(error).__name__}: {error}\n" + traceback.format_exc(limit=-2)
        took = time.monotonic() - start
        print(f"{'FAIL' if problem else 'PASS'}  {took:6.2f} s  {name}", flush=True)
        if problem:
            self.failed += 1
            print("      " + problem.strip().replace("\n", "\n      "), flush=True)
        else:
            self.passed += 1
