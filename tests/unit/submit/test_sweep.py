"""What a result was measured with still is what its run's names mean; one local run at a time."""

import threading
import time

import msgspec
import pytest

from scaling_study.spec import Catalogue, Dataset, DataSource, TokenManifest
from scaling_study.submit import Driver, RunStore
from scaling_study.submit.local import alone_on_this_machine
from tests.unit.samples import CONFIG, PART, TINY, run_result, training_run

RUN = training_run()


class Notes:
    """A monitor that remembers what is noted and finished."""

    def __init__(self):
        self.notes, self.finished = [], []

    def start(self, run, position, total):
        raise AssertionError("nothing is to be measured")

    def progress(self, run, progress):
        pass

    def finish(self, run, result, *, fresh):
        self.finished.append((result, fresh))

    def note(self, message):
        self.notes.append(message)


@pytest.fixture
def driver(tmp_path):
    catalogue = Catalogue(models={RUN.model: TINY}, hardware={RUN.hardware: PART})
    return Driver(CONFIG.platform("local"), catalogue, RunStore(tmp_path), tmp_path, Notes())


def store(driver, result):
    driver.store.claim(RUN, driver.me)
    driver.store.end(result)
    return result


def test_a_result_is_taken_as_it_is(driver):
    result = store(driver, msgspec.structs.replace(run_result(RUN), model=TINY))
    assert driver.measure([RUN]) == [result]
    assert driver.monitor.finished == [(result, False)]


@pytest.mark.parametrize("change", [{"layers": 7}, {"ffn": 24}, {"rope_base": 1.0}])
def test_a_result_of_another_model_is_set_aside(driver, change):
    store(driver, msgspec.structs.replace(run_result(RUN), model=msgspec.structs.replace(TINY, **change)))
    with pytest.raises(AssertionError, match="nothing is to be measured"):
        driver.measure([RUN])
    assert "with other dimensions; measuring it again" in driver.monitor.notes[0]
    assert driver.store.result(RUN) is None
    assert len(list(driver.store.files(RUN).folder.glob("result.*.json"))) == 1


def test_another_source_of_the_same_dimensions_changes_nothing(driver):
    elsewhere = msgspec.structs.replace(TINY, source="elsewhere")
    result = store(driver, msgspec.structs.replace(run_result(RUN), model=elsewhere))
    assert driver.measure([RUN]) == [result]


def test_a_result_of_other_data_is_set_aside(driver):
    store(driver, msgspec.structs.replace(run_result(RUN), model=TINY))
    dataset = Dataset(name=RUN.protocol.data, title="t", source=DataSource.SYNTHETIC)
    driver.manifests = {RUN.protocol.data: TokenManifest(dataset=dataset, tokens=1, sha256="another")}
    with pytest.raises(AssertionError, match="nothing is to be measured"):
        driver.measure([RUN])
    assert "with other tokens; measuring it again" in driver.monitor.notes[0]


def test_one_run_at_a_time_on_this_machine():
    order, waited = [], []

    def second():
        with alone_on_this_machine(lambda: waited.append(True)):
            order.append("second")

    with alone_on_this_machine(lambda: pytest.fail("somebody measures on this machine")):
        thread = threading.Thread(target=second)
        thread.start()
        deadline = time.monotonic() + 5
        while not waited and time.monotonic() < deadline:
            time.sleep(0.01)
        order.append("first")
    thread.join(5)
    assert order == ["first", "second"]
