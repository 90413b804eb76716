from idml.errors import MANY, NEAREST, unknown_name


def test_few_known_names_are_listed():
    assert str(unknown_name("loss", "x", ["b", "a"])) == "unknown loss 'x': Known: a, b."


def test_of_many_known_names_the_nearest_are_told():
    names = [f"setting_{number}" for number in range(MANY)] + ["tau"]
    told = str(unknown_name("setting", "tua", names))
    assert told == "unknown setting 'tua': did you mean 'tau'?"
    told = str(unknown_name("setting", "setting_", names))
    assert told.count("setting_") == 1 + NEAREST


def test_many_names_are_listed_where_none_is_near():
    names = [f"setting_{number}" for number in range(MANY + 1)]
    assert "Known: setting_0" in str(unknown_name("setting", "zzz", names))


def test_a_name_that_is_begun_is_gone_on_with():
    scores = [*(f"recall@{k}" for k in (8, 4, 2, 1)), *(f"score_{number}" for number in range(MANY))]
    assert "did you mean 'recall@1'?" in str(unknown_name("score", "recall", scores))
