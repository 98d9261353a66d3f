-- Every trial, as its last attempt left it, in the order of the execution. Units as in the view attempts.
SELECT *
FROM attempts
WHERE dt = '${dt}' AND execution = '${execution}' AND is_last
ORDER BY sequence, topology
