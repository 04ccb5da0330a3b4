"""The file of peak bandwidths: kept per machine and threads, best kept, private, and never in the way."""

import json
import stat
from types import SimpleNamespace

import pytest

from engine import Peak
from termchat.peaks import Peaks


class Engine:
    """What `Peaks` knows of an engine; reads at these rates."""

    def __init__(self, *rates, place="a cpu; 2 threads", quiet=True):
        self.info = SimpleNamespace(place=place)
        self.peak = None
        self._rates, self._quiet = list(rates), quiet

    def tell_peak(self, peak):
        self.peak = peak.joined(self.peak)

    async def bandwidth_peak(self):
        if self._rates:
            self.tell_peak(Peak(self._rates.pop(0), self._quiet))
        return None if self.peak is None else self.peak.gbs


async def test_B3_the_best_peak_is_kept_from_run_to_run(tmp_path):
    path = tmp_path / "state" / "peaks.json"
    assert await Peaks(path).measure(Engine(15e9, quiet=False)) == 15
    assert await Peaks(path).measure(Engine(22e9)) == 22
    assert await Peaks(path).measure(Engine(8e9, quiet=False)) == 22, "a busy machine does not lower it"
    other = Engine(place="a cpu; 1 thread")
    Peaks(path).tell(other)
    assert other.peak is None, "other threads have another peak"
    again = Engine()
    Peaks(path).tell(again)
    assert again.peak == Peak(22e9, quiet=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "content",
    ["", "nonsense", "[]", "7", "null", "[" * 100_000, '{"KEY": 5}', '{"KEY": {"rate": "x", "quiet": true}}']
    + [
        '{"KEY": {"rate": RATE, "quiet": true}}'.replace("RATE", rate)
        for rate in ("NaN", "Infinity", "-1", "0", "1e300", "true")
    ]
    + [
        '{"KEY": {"rate": 5e9}}',
        '{"KEY": {"rate": 5e9, "quiet": 3}}',
        "\ufeff{}",
        '{"KEY": {"rate": 1' + "0" * 400,
    ],
)
async def test_a_damaged_file_costs_a_measurement(content, tmp_path):
    path = tmp_path / "peaks.json"
    engine = Engine(20e9)
    key = "KEY"
    path.write_text(content)
    await Peaks(tmp_path / "other.json").measure(Engine(1e10))
    [key] = json.loads((tmp_path / "other.json").read_text())
    path.write_text(content.replace("KEY", key.replace('"', "")))
    assert await Peaks(path).measure(engine) == 20
    assert len(json.loads(path.read_text())) == 1


async def test_a_folder_that_cannot_be_written_is_no_fault(tmp_path):
    (tmp_path / "state").write_text("a file")
    assert await Peaks(tmp_path / "state" / "peaks.json").measure(Engine(20e9)) == 20


async def test_engines_without_a_peak_leave_no_file(tmp_path):
    path = tmp_path / "peaks.json"
    assert await Peaks(path).measure(Engine()) is None
    assert await Peaks(path).measure(Engine(5e9, place="")) == 5
    assert not path.exists()


async def test_old_places_are_forgotten(tmp_path):
    path = tmp_path / "peaks.json"
    for number in range(70):
        await Peaks(path).measure(Engine(20e9, place=f"place {number}"))
    kept = json.loads(path.read_text())
    assert len(kept) == 64
    assert any(key.endswith("place 69") for key in kept)
    assert not any(key.endswith("place 5") for key in kept)
