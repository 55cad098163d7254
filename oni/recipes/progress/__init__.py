"""What a person, or a program, sees of runs while they train."""
