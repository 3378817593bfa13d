"""Tests that stand on each other (no tests of its own)."""

import unittest


class Story(unittest.TestCase):
    """Its tests are told in order; after one that failed the rest are skipped."""

    broken = None

    def run(self, result=None):
        """Runs the test unless an earlier one failed."""
        cls = type(self)
        if cls.broken:
            result.startTest(self)
            result.addSkip(self, f"{cls.broken} failed")
            result.stopTest(self)
            return result
        before = result.failed_so_far()
        super().run(result)
        if result.failed_so_far() > before:
            cls.broken = self._testMethodName.removeprefix("test_").replace("_", " ")
        return result
