"""What the rules need to know before a job starts. Imports the standard library and yaml only."""
