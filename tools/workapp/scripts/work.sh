# Ordinary work of shell scripts. Says "shell work done" at its end.
set -eu
times=$1
dir=$(mktemp -d ./sh.XXXXXX)
cd "$dir"
is() { [ "$1" = "$2" ] || { echo "got <$1>, want <$2>" >&2; exit 1; }; }

is "$(printf 'b\na\nc\n' | sort | tr '\n' ' ')" "a b c "
is "$(seq 1 "$times" | wc -l | tr -d ' ')" "$times"
is "$(echo one two | sed 's/two/2/')" "one 2"
is "$(echo a:b:c | cut -d: -f2)" b
is "$(printf 'x\ny\nx\n' | sort | uniq -c | awk '{print $1 $2}' | tr '\n' ' ')" "2x 1y "

# Here documents, redirections, subshells, traps, background jobs.
cat > here <<END
$times
END
is "$(cat here)" "$times"
(echo sub; exit 3) > sub || is $? 3
is "$(cat sub)" sub
sleep 0 & wait $!
trap 'echo trapped > trap' USR1
kill -USR1 $$
is "$(cat trap)" trapped
echo err 2>&1 >/dev/null | cat > empty
is "$(cat empty)" ""
echo to-stderr > /dev/stderr
echo to-stdout > /dev/stdout
exec 5> five; echo fifth >&5; exec 5>&-
is "$(cat five)" fifth
(kill -TERM $(sh -c 'echo $PPID')) 2>/dev/null || true

# Files: copies, moves, links, modes, times, archives.
mkdir -p tree/a/b
i=0
while [ $i -lt "$times" ]; do echo $i > tree/a/$i; i=$((i + 1)); done
cp -r tree copy
cp -a tree archive
diff -r tree copy
mv copy/a tree/moved
ln tree/a/0 hard
ln -s tree/a/1 soft
is "$(cat hard soft | tr '\n' ' ')" "0 1 "
ln -sfn tree/moved soft
is "$(readlink soft)" tree/moved
is "$(find tree -type f | wc -l | tr -d ' ')" $((times * 2))
find tree -name '1*' -exec cat {} + > found
find tree/moved -type f -print0 | xargs -0 rm
chmod -R u+rwX,go-w tree
chmod 600 here
is "$(stat -c %a here)" 600
touch -d '2020-02-02 00:00:00 UTC' here
is "$(stat -c %Y here)" 1580601600
[ five -nt here ]
tar -czf all.tar.gz tree hard here
mkdir out
tar -xzpf all.tar.gz -C out
diff -r tree out/tree
is "$(stat -c '%a %Y' out/here)" "600 1580601600"
gzip -k here && gzip -dc here.gz | cmp - here
dd if=/dev/zero of=zeros bs=4096 count=16 2>/dev/null
is "$(stat -c %s zeros)" 65536
truncate -s 10 zeros
cp --sparse=always zeros sparse
install -m 755 here installed
is "$(stat -c %a installed)" 755
mktemp > /dev/null
sync zeros
split -b 4 zeros part.
is "$(ls part.* | wc -l | tr -d ' ')" 3
yes | head -n "$times" | tail -n 1 > /dev/null
df . > /dev/null
du -s . > /dev/null
id -u > /dev/null
[ "$(nproc)" -ge 1 ]
date > /dev/null
env -i /app/bin/true
nice -n 5 true
timeout 10 true
timeout 0.01 sleep 60 || is $? 124
nohup true > /dev/null 2>&1
tee one two < here > /dev/null
cmp one two
flock_test() { mkdir lock && rmdir lock; }
flock_test
cd ..
rm -rf "$dir"

if [ -n "${BASH_VERSION:-}" ]; then # what only bash can read
	eval '
	is "$(cat <(echo substituted))" substituted
	mapfile -t lines < <(seq 3)
	is "${#lines[@]}" 3
	coproc cat; echo through >&"${COPROC[1]}"; read -r line <&"${COPROC[0]}"
	is "$line" through
	is "$(cat <<< word)" word
	'
fi
echo shell work done
