//! What each subcommand prints, good input and bad. `TRYCMD=overwrite cargo test -p portcullis` takes new output.

#[test]
fn commands_print_what_the_snapshots_say() {
    trycmd::TestCases::new()
        // Programs that are given would not be missing.
        .env("KUBEBUILDER_ASSETS", "")
        .case("tests/cmd/*.trycmd")
        // With standard input.
        .case("tests/cmd/*.toml")
        .env("NO_COLOR", "1")
        .env("COLUMNS", "100");
}
