"""The safety nets that every case of every learner goes through: small runs, real Ray, damage, mutants, the table."""
