-- One row a trial that may be compared: its last attempt, if that is valid. A trial under a failure is compared with
-- nothing. Columns and units of attempts.
SELECT *
FROM attempts
WHERE is_last AND verdict = 'valid' AND failure IS NULL
