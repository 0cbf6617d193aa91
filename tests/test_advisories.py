"""No pinned package has a fault that tests/advisories.txt names."""

from __future__ import annotations

from tests import advisories
from tests.advisories import Advisory


def test_no_pinned_or_installed_package_has_a_known_fault(capsys):
    assert advisories.main() == 0, capsys.readouterr().err


def test_a_pin_below_the_first_mended_version_is_named():
    known = [Advisory("py-yaml", "5.4", "CVE-1"), Advisory("b", "2024.7.4", "CVE-2")]
    pins = [("Py_YAML", "5.3.1"), ("py-yaml", "5.10"), ("b", "2024.7.4.post1"), ("c", "0.1")]

    assert list(advisories.affected(pins, known)) == ["Py_YAML 5.3.1: CVE-1, mended in 5.4"]
