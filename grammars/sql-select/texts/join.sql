SELECT DISTINCT c.name, o.total
FROM customers AS c
LEFT JOIN orders AS o ON o.customer = c.id
INNER JOIN (SELECT city, max(height) AS top FROM towers WHERE city IN ('Köln', '東京', 'São Paulo') GROUP BY city HAVING max(height) > 300) AS t ON t.city = c.city
WHERE (o.total >= 100 OR c.since IS NOT NULL) AND NOT c.name IN (SELECT name FROM blocked WHERE reason = 'won''t pay')
ORDER BY o.total DESC, c.name;
