"""Many runs: in this process, one after the other, or over a Ray cluster."""
