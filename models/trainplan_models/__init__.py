"""What is true of the world: models, accelerators, prices, failures. No solver, no command line."""
