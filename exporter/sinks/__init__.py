"""Where what is known goes, beside the page. A sink is stepped by the runner, as a source is."""
