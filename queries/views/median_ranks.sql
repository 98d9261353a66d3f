-- Which order statistics bound a median with at least 95 % confidence, by the binomial distribution, exactly: of n values,
-- n_from <= n <= n_to, the k-th smallest and the k-th largest. Fewer than six values have none; from 103 values on, the
-- interval is wider than it need be.
SELECT
    n_from,
    lead(n_from, 1, 1000000) OVER (ORDER BY n_from) - 1 AS n_to,
    row_number() OVER (ORDER BY n_from) AS k
FROM (
    VALUES
        6, 9, 12, 15, 17, 20, 23, 25, 28, 30, 33, 35, 37, 40, 42, 44, 47, 49, 51, 54, 56,
        58, 61, 63, 65, 67, 70, 72, 74, 77, 79, 81, 83, 86, 88, 90, 92, 94, 97, 99, 101
) AS thresholds (n_from)
