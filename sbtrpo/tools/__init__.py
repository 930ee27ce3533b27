"""Commands beside training: the demo, the doctor, speed, and the tables of the documentation."""
