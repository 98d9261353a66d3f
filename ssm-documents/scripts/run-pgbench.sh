# A PostgreSQL of its own on the file system under test, reached by a socket alone, as the user postgres.
binaries=$(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
if [ -d "$binaries" ]; then
  PATH="$binaries:$PATH"
fi
version=$(pgbench --version | sed 's/^[^0-9]*//')
cluster_files=/var/tmp/volumetry/postgresql.template
socket=$state/postgresql

as_postgres() {
  (cd / && PGHOST=$socket PGUSER=postgres exec setpriv --reuid=postgres --regid=postgres --init-groups "$@")
}

# initdb takes long on a slow processor, and makes the same files every time: once a host.
make_template() {
  [ ! -e "$cluster_files/PG_VERSION" ] || return 0
  rm -rf "$cluster_files" "$cluster_files.new"
  install -d -o postgres -g postgres -m 700 "$cluster_files.new"
  as_postgres initdb --pgdata="$cluster_files.new" --auth=trust --encoding=UTF8 --locale=C --no-sync >initdb.out
  mv "$cluster_files.new" "$cluster_files"
}

stop_cluster() {
  [ -e "$data/postmaster.pid" ] || return 0
  as_postgres pg_ctl --pgdata="$data" --mode=fast --timeout=60 -w stop >>postgresql.log 2>&1 ||
    as_postgres pg_ctl --pgdata="$data" --mode=immediate --timeout=10 -w stop >>postgresql.log 2>&1
}

remove_cluster() {
  stop_cluster || true
  rm -rf "$data" "$work.postgresql"
}

start_cluster() {
  local directory
  directory=$(cat "$target/mount")
  remove_cluster
  make_template
  cp -a "$cluster_files" "$data"
  # The template was not synced, its copy is.
  sync -f "$directory"
  install -d -o postgres -g postgres "$socket" "$work.postgresql"
  cat >>"$data/postgresql.conf" <<END
listen_addresses = ''
unix_socket_directories = '$socket'
max_connections = $((${order[pgbench.client]} + 20))
fsync = on
jit = off
END
  as_postgres pg_ctl --pgdata="$data" --log="$work.postgresql/server" --timeout=120 -w start >>postgresql.log 2>&1 9>&- || {
    cat "$work.postgresql/server" >>postgresql.log
    fail "PostgreSQL did not start: $(tail -n 1 postgresql.log)"
  }
  # What differs from its defaults, as it says itself.
  as_postgres psql -qAtX -d postgres -c "select 'postgresql_settings=' || json_object_agg(name, setting order by name)
    from pg_settings where source not in ('default', 'client')" >>facts
}

load() {
  local status=0 option given=()
  [ -e "$target/mount" ] || fail "pgbench needs a file system: the topology has none"
  data=$(cat "$target/mount")/postgresql
  trap remove_cluster EXIT
  start_cluster
  as_postgres createdb bench
  as_postgres pgbench --initialize --quiet --scale="${order[pgbench.scale]}" bench >pgbench-init.out 2>&1 ||
    fail "pgbench cannot fill its tables: $(tail -n 1 pgbench-init.out)"
  # What filling left to be written is not the load's.
  as_postgres psql -qX -d bench -c checkpoint
  for option in client jobs time transactions protocol rate builtin; do
    [ -z "${order[pgbench.$option]:-}" ] || given+=("--$option=${order[pgbench.$option]}")
  done
  tell begun
  echo "started=$EPOCHREALTIME" >>facts
  as_postgres pgbench "${given[@]}" --log --log-prefix="$work.postgresql/pgbench_log" bench \
    >pgbench.out 2>reason || status=$?
  echo "ended=$EPOCHREALTIME" >>facts
  mv "$work.postgresql"/pgbench_log* . || true
  return "$status"
}

measure pgbench "$version"
