-- The rows of a large installation, statement by statement; run by scale_rows.py.

-- name: sums of hours
with kinds (kind, purpose, mechanism, dimension, model, role) as (values
  (0, 'gate', 'gate', 'adherence', 'claude-haiku-5-5', 'judge'), (1, 'gate', 'gate', 'consistency', 'claude-haiku-5-5', 'judge'),
  (2, 'gate', 'gate', 'fluency', 'claude-haiku-5-5', 'judge'), (3, 'evaluation', 'adherence', 'adherence', 'claude-haiku-4-5', 'judge'),
  (4, 'turn', '', '', 'claude-haiku-5-5', 'actor'), (5, 'intervention', 'anti_convergence', '', 'claude-haiku-5-5', 'judge'))
insert into ledger_hours (hour, agent_id, purpose, mechanism, dimension, model, role, provider, status, calls, unpriced,
  input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_usd, latency_ms)
select %(start)s + (n / %(hourly)s) * interval '1 hour', a.ids[1 + mod(mod(n, %(hourly)s), %(agents)s)], purpose, mechanism, dimension, model, role,
  'anthropic', case when mod(n, 97) = 0 then 'timeout' else 'ok' end, 1 + mod(n, 9), (mod(n, 101) = 0)::int, 900 * (1 + mod(n, 9)), 80 * (1 + mod(n, 9)),
  400, 0, 0.00013 * (1 + mod(n, 9)), 900 * (1 + mod(n, 9))
from generate_series(0::bigint, %(rows)s - 1) n
join kinds on kind = mod(mod(n, %(hourly)s) / %(agents)s + n / %(hourly)s, 6), (select array_agg(id order by id) ids from agents) a

-- name: calls
with kinds (kind, purpose, mechanism, dimension, model, role) as (values
  (0, 'gate', 'gate', 'adherence', 'claude-haiku-5-5', 'judge'), (1, 'gate', 'gate', 'consistency', 'claude-haiku-5-5', 'judge'),
  (2, 'gate', 'gate', 'fluency', 'claude-haiku-5-5', 'judge'), (3, 'evaluation', 'adherence', 'adherence', 'claude-haiku-4-5', 'judge'),
  (4, 'turn', '', '', 'claude-haiku-5-5', 'actor'), (5, 'intervention', 'anti_convergence', '', 'claude-haiku-5-5', 'judge'))
insert into llm_calls (created_at, role, purpose, mechanism, dimension, agent_id, work_id, provider, endpoint, model, served_model,
  status, error, stop_reason, input_tokens, output_tokens, cache_read_tokens, cost_usd, latency_ms, attempts, request_id, request_digest)
select %(start)s + n * (%(days)s * interval '1 day' / %(rows)s), role, purpose, mechanism, dimension, a.ids[1 + mod(n * 7, %(agents)s)],
  'gate_session:' || md5(n::text)::uuid, 'anthropic', 'https://api.example', model, model, case when mod(n, 97) = 0 then 'timeout' else 'ok' end,
  '', 'end_turn', 900, 80, 400, case when mod(n, 101) = 0 then null else 0.00013 end, 900, 1, 'req_' || n, md5(n::text) || md5(n::text)
from generate_series(0::bigint, %(rows)s - 1) n
join kinds on kind = mod(n, 6), (select array_agg(id order by id) ids from agents) a

-- name: sessions
insert into gate_sessions (id, uuid, source, agent_id, channel_id, outcome, sent, created_at)
select n + 1, md5(n::text)::uuid, case when mod(n, 10) = 9 then 'observe' else 'gate' end,
  a.ids[1 + mod(n / 2, %(agents)s)], c.ids[1 + mod(n / 2, %(agents)s)],
  case when mod(n, 20) = 0 then 'passed_after_retry' when mod(n, 10) = 9 then 'observed'
       when mod(n, 1000) = 7 then 'timeout_passed' when mod(n, 5000) = 13 then 'forced_through' else 'passed' end,
  1 + (mod(n, 20) = 0)::int, %(start)s + n * (%(days)s * interval '1 day' / %(rows)s)
from generate_series(0::bigint, %(rows)s - 1) n,
  (select array_agg(id order by id) ids from agents) a, (select array_agg(id order by id) ids from channels) c
where mod(n, 20) <> 1

-- name: logs
insert into correction_logs (session_id, attempt, original_text, judged_text, payload, outcome, feedback, score_sum, judge, duration_ms, created_at)
select n - (mod(n, 20) = 1)::int + 1, 1 + (mod(n, 20) = 1)::int, t, t, '{}',
  case when mod(n, 20) = 0 then 'corrected' when mod(n, 20) = 1 then 'passed_after_retry' when mod(n, 10) = 9 then 'observed'
       when mod(n, 1000) = 7 then 'timeout_passed' when mod(n, 5000) = 13 then 'forced_through' else 'passed' end,
  case when mod(n, 20) = 0 then repeat('Say it in your own words. ', 10) else '' end, 18, 'claude-haiku-5-5', 600,
  %(start)s + n * (%(days)s * interval '1 day' / %(rows)s)
from generate_series(0::bigint, %(rows)s - 1) n, repeat('Some words as people write them. ', 6) t

-- name: verdicts
insert into correction_dimension_results (log_id, dimension, status, score, threshold, passed, reasoning, recommendations, reason, judge,
  proposition_id, parts, duration_ms, mark)
select l.id, d, case when l.outcome = 'timeout_passed' then 'timeout' else 'scored' end,
  case when l.outcome = 'timeout_passed' then null when l.outcome in ('corrected', 'forced_through') and d = 'fluency' then 2 else 5 + mod(l.id, 5) end,
  5, l.outcome not in ('corrected', 'forced_through') or d <> 'fluency', repeat('Because it is so. ', 8), '', '', l.judge, 'p-1', '[]', 600, ''
from correction_logs l, unnest(array['adherence', 'consistency', 'fluency']) d
