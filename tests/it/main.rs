mod aprun_cli;
