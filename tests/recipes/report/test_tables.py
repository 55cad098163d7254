import re

from oni.recipes.report.tables import make_table


def read_rows(page):
    """The rows of the table of runs by the name of the run."""
    lines = [" ".join(re.sub("<.*?>", " ", row).split()) for row in re.findall(r"<tr>(.*?)</tr>", page.source)]
    return {line.split()[0]: line for line in lines}


def test_runs_and_their_states(report, write_run, tmp_path):
    write_run(tmp_path / "good", error=0.1)
    write_run(tmp_path / "better", error=0.05, learning_rate=0.5)
    write_run(tmp_path / "diverged", "diverged", epochs=1, method="plain")
    write_run(tmp_path / "unfinished", "unfinished", epochs=2, error=0.01, seed=1)
    write_run(tmp_path / "begun", "unfinished", epochs=0, seed=2)
    page = report(tmp_path)
    rows = read_rows(page)
    assert rows["good"] == "good finished oni 10 0.1 0 3 / 3 3.33 10.00 4.5"
    assert rows["better"] == "better finished oni 10 0.5 0 3 / 3 1.67 5.00 4.5"
    assert rows["diverged"] == "diverged diverged plain 10 0.1 0 1 / 3 – – 4.5"
    assert rows["unfinished"] == "unfinished unfinished oni 10 0.1 1 2 / 3 0.50 1.00 3.0"
    assert rows["begun"] == "begun unfinished oni 10 0.1 2 0 / 3 – – 0.0"
    assert page.words.count("Configuration") == 5
    assert "5 runs" in page.words
    assert "claims" not in page.words


def test_no_run_is_best_by_its_test_error(report, write_run, tmp_path):
    write_run(tmp_path / "good", error=0.1)
    write_run(tmp_path / "better", error=0.05, learning_rate=0.5)
    page = report(tmp_path)
    assert "best" not in page.words.lower()
    assert "Measured after the last epoch." in page.words


def test_the_best_run_is_chosen_by_validation(report, write_run, tmp_path):
    write_run(tmp_path / "lucky", error=0.05, validation=0.2)
    write_run(tmp_path / "chosen", error=0.1, validation=0.1, learning_rate=0.5)
    write_run(tmp_path / "unfinished", "unfinished", epochs=2, error=0.01, validation=0.01, seed=1)
    page = report(tmp_path)
    rows = read_rows(page)
    assert "best 10.00" in rows["chosen"]
    assert "best" not in rows["lucky"] + rows["unfinished"]
    assert "Best: the lowest validation error" in page.words


def test_columns_of_numbers_are_aligned_as_numbers():
    table = make_table(
        ["name", "error", "empty"], [["a", "1.0 ± 0.2", ""], ["b", "inf", ""], ["c", "not yet measured", ""]]
    )
    assert list(table.numeric) == [False, True, False]


def test_the_shape_on_a_phone():
    def shape(*cells):
        return make_table([f"column {index}" for index in range(len(cells))], [list(cells)]).shape

    assert shape("a", "1", "2") == "narrow"
    assert shape("a", "1", "2", "3") == "stack"
    assert shape("0", "1", "2", "3") == "wide"
