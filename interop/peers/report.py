"""Runs and counts cases."""

import time
import traceback


class Failed(Exception):
    """A failed check; the message is a sentence."""


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
        except Exception as error:  # such as a timeout: the case has failed, the others continue
            problem = f"{type(error).__name__}: {error}\n" + traceback.format_exc(limit=-2)
        took = time.monotonic() - start
        print(f"{'FAIL' if problem else 'PASS'}  {took:6.2f} s  {name}", flush=True)
        if problem:
            self.failed += 1
            print("      " + problem.strip().replace("\n", "\n      "), flush=True)
        else:
            self.passed += 1
