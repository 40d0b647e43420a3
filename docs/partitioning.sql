-- Partitioning of the two largest tables on PostgreSQL 14 or newer: llm_calls by its id, correction_dimension_results by log_id.
-- When, why by id, why not correction_logs, and what it costs: docs/reference/growth.md. Tried by tests/test_partitioning.py.
--
--   psql "$DATABASE_URL" -f docs/partitioning.sql                                    the functions, once
--   select plumbline_partition('llm_calls', 'id');                                   convert; no row is copied
--   select plumbline_partition('correction_dimension_results', 'log_id');
--   select plumbline_add_partition('llm_calls', 30000000);                           monthly: room for so many ids more
--   select plumbline_drop_before('llm_calls', now() - interval '90 days');           after `manage.py rollup`
--
-- Converting locks the table for everybody while it reads it once or twice. Do it in a quiet minute; it is one transaction.

create or replace function plumbline_partition(tab text, key text) returns text language plpgsql as $$
declare
  old text := tab || '_p0';
  bound bigint;
  one record;
  inbound jsonb;
  outbound jsonb;
  indexes jsonb;
begin
  execute format('lock table %I in access exclusive mode', tab);
  execute format('select coalesce(max(%I), 0) + 1 from %I', key, tab) into bound;
  select coalesce(jsonb_agg(jsonb_build_object('name', conname, 'of', conrelid::regclass::text, 'def', pg_get_constraintdef(oid))), '[]')
    into inbound from pg_constraint where confrelid = tab::regclass and contype = 'f' and conparentid = 0;
  select coalesce(jsonb_agg(jsonb_build_object('name', conname, 'def', pg_get_constraintdef(oid))), '[]')
    into outbound from pg_constraint where conrelid = tab::regclass and contype = 'f';
  select jsonb_agg(jsonb_build_object('name', c.relname, 'how', substring(pg_get_indexdef(c.oid) from ' USING .*$'), 'pk', i.indisprimary,
      'unique', i.indisunique and (select attnum from pg_attribute where attrelid = tab::regclass and attname = key) = any (i.indkey)))
    into indexes from pg_index i join pg_class c on c.oid = i.indexrelid where i.indrelid = tab::regclass;

  for one in select * from jsonb_to_recordset(inbound) as x(name text, "of" text) loop
    execute format('alter table %s drop constraint %I', one.of, one.name);
  end loop;
  execute format('alter table %I rename to %I', tab, old);
  for one in select * from jsonb_to_recordset(indexes) as x(name text) loop
    execute format('alter index %I rename to %I', one.name, left(one.name, 60) || '_p0');
  end loop;
  execute format('create table %I (like %I including defaults including constraints including identity including storage)
    partition by range (%I)', tab, old, key);
  execute format('select setval(pg_get_serial_sequence(%L, ''id''), coalesce((select max(id) from %I), 0) + 1, false)', tab, old);
  execute format('alter table %I alter column id drop identity', old);
  execute format('alter table %I add constraint plumbline_range check (%I < %s)', old, key, bound);
  execute format('alter table %I attach partition %I for values from (minvalue) to (%s)', tab, old, bound);

  for one in select * from jsonb_to_recordset(indexes) as x(name text, how text, pk boolean, "unique" boolean) loop
    if one.pk and one.unique then
      execute format('alter table %I add constraint %I primary key (%I)', tab, one.name, key);
    else
      execute format('create %s index %I on %I %s', case when one.unique then 'unique' else '' end, one.name, tab, one.how);
    end if;
  end loop;
  for one in select * from jsonb_to_recordset(outbound) as x(name text, def text) loop
    execute format('alter table %I add constraint %I %s', tab, one.name, one.def);
  end loop;
  for one in select * from jsonb_to_recordset(inbound) as x(name text, "of" text, def text) loop
    execute format('alter table %s add constraint %I %s', one.of, one.name, one.def);
  end loop;
  -- Never without a place for a row: what the monthly job forgets lands here.
  execute format('create table %I partition of %I default', tab || '_rest', tab);
  return format('%s: rows below %s are in %s', tab, bound, old);
end $$;

-- The partitions with their bounds, oldest first; not the one that takes the rest.
create or replace function plumbline_partitions(tab text) returns table (name text, first bigint, past bigint) language sql as $$
  select c.relname::text, substring(b.bound from 'FROM \(''?(-?\d+)')::bigint, substring(b.bound from 'TO \(''?(-?\d+)')::bigint
  from pg_inherits i join pg_class c on c.oid = i.inhrelid, lateral (select pg_get_expr(c.relpartbound, c.oid) as bound) b
  where i.inhparent = tab::regclass and b.bound <> 'DEFAULT' order by 3
$$;

create or replace function plumbline_add_partition(tab text, ids bigint) returns text language plpgsql as $$
declare
  last bigint := (select max(past) from plumbline_partitions(tab));
  made text := tab || '_p' || last;
begin
  execute format('create table %I partition of %I for values from (%s) to (%s)', made, tab, last, last + ids);
  return made;
end $$;

-- Drops the partitions of which every row is older, with what refers to them: a reference that may be empty becomes empty, else its row
-- goes (stored payloads). Only rows that are summed: nothing after the last closed hour.
create or replace function plumbline_drop_before(tab text, moment timestamptz) returns setof text language plpgsql as $$
declare
  part record;
  fk record;
  newest timestamptz;
  sums text := case tab when 'llm_calls' then 'ledger' else 'gate' end;
  summed timestamptz := (select closed_before from rollups where name = sums);
begin
  for part in select * from plumbline_partitions(tab) loop
    if tab = 'correction_dimension_results' then
      execute format('select max(created_at) from correction_logs where id = (select max(log_id) from %I)', part.name) into newest;
    else
      execute format('select max(created_at) from %I', part.name) into newest;
    end if;
    continue when newest is null;  -- it is empty; those after it may not be
    exit when newest >= moment;
    if summed is null or newest >= summed then
      raise exception 'sums of % reach only to %: run manage.py rollup first, then drop before %', tab, summed, moment;
    end if;
    for fk in
      select c.conrelid::regclass as referrer, a.attname as col, a.attnotnull as needed
      from pg_constraint c join pg_attribute a on a.attrelid = c.conrelid and a.attnum = c.conkey[1]
      where c.confrelid = tab::regclass and c.contype = 'f'
        and not exists (select from pg_inherits where inhrelid = c.conrelid)
    loop
      execute format(case when fk.needed then 'delete from %1$s where %2$I < %3$s' else 'update %1$s set %2$I = null where %2$I < %3$s' end,
        fk.referrer, fk.col, part.past);
    end loop;
    set constraints all immediate;
    execute format('alter table %I detach partition %I', tab, part.name);
    execute format('drop table %I', part.name);
    return next part.name;
  end loop;
end $$;
