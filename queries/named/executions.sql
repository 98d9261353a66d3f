-- Which executions are there? The latest fifty, with the id and the partition (dt) that the other queries ask for.
SELECT *
FROM executions
ORDER BY started_at DESC
LIMIT 50
