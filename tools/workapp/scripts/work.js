// Ordinary work of Node programs. Says "node work done" at its end.
//
//	node work.js TIMES PORT
'use strict';
const assert = require('assert');
const { once } = require('events');
const child = require('child_process');
const crypto = require('crypto');
const dgram = require('dgram');
const fs = require('fs');
const http = require('http');
const os = require('os');
const path = require('path');
const stream = require('stream/promises');
const zlib = require('zlib');
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');

const [times, port] = process.argv.slice(2).map(Number);

if (!isMainThread) {
	parentPort.postMessage(workerData * 2);
} else if (process.send) {
	process.on('message', (m) => { process.send(m.toUpperCase()); process.disconnect(); });
} else {
	main().then(() => console.log('node work done'), (e) => { console.error(e); process.exit(1); });
}

async function main() {
	for (const f of [files, streams, watching, children, workers, network, rest]) {
		try { await f(); } catch (e) { e.message = f.name + ': ' + e.message; throw e; }
	}
}

async function files() {
	const top = await fs.promises.mkdtemp('./js-');
	await Promise.all(Array.from({ length: times }, async (_, i) => {
		const dir = path.join(top, 'd' + i % 5);
		await fs.promises.mkdir(dir, { recursive: true });
		await fs.promises.writeFile(path.join(dir, i + '.json'), JSON.stringify({ i }));
	}));
	let found = 0;
	for (const d of await fs.promises.readdir(top)) {
		for (const f of await fs.promises.readdir(path.join(top, d))) {
			const at = path.join(top, d, f);
			assert.strictEqual(JSON.parse(fs.readFileSync(at)).i, parseInt(f));
			await fs.promises.rename(at, at + '.done');
			found++;
		}
	}
	assert.strictEqual(found, times);
	fs.writeFileSync(path.join(top, 'a'), 'a');
	fs.copyFileSync(path.join(top, 'a'), path.join(top, 'b'));
	fs.cpSync(top, top + '-copy', { recursive: true });
	fs.linkSync(path.join(top, 'a'), path.join(top, 'hard'));
	fs.symlinkSync('a', path.join(top, 'soft'));
	assert.strictEqual(fs.readFileSync(path.join(top, 'soft'), 'utf8'), 'a');
	assert.strictEqual(fs.realpathSync(path.join(top, 'soft')), path.join(process.cwd(), top, 'a'));
	fs.utimesSync(path.join(top, 'a'), 1, 2);
	fs.chmodSync(path.join(top, 'a'), 0o600);
	fs.appendFileSync(path.join(top, 'a'), 'b');
	fs.truncateSync(path.join(top, 'a'), 1);
	const h = await fs.promises.open(path.join(top, 'a'), 'r+');
	await h.sync();
	await h.datasync();
	await h.close();
	fs.rmSync(top, { recursive: true });
	fs.rmSync(top + '-copy', { recursive: true });
}

async function streams() {
	const data = crypto.randomBytes(1 << 20);
	fs.writeFileSync('big', data);
	await stream.pipeline(fs.createReadStream('big'), zlib.createGzip(), fs.createWriteStream('big.gz'));
	assert(zlib.gunzipSync(fs.readFileSync('big.gz')).equals(data));
}

async function watching() {
	fs.mkdirSync('watched');
	const w = fs.watch('watched');
	const seen = once(w, 'change');
	fs.writeFileSync('watched/f', 'x');
	assert.strictEqual((await seen)[1], 'f');
	w.close();
}

async function children() {
	assert.strictEqual(child.execFileSync(process.execPath, ['-p', '6*7']).toString(), '42\n');
	assert.strictEqual(child.execSync('echo $((1+1)) | cat').toString(), '2\n');
	assert.strictEqual(child.spawnSync('cat', { input: 'in' }).stdout.toString(), 'in');
	const c = child.spawn('sleep', ['100'], { detached: true });
	c.kill();
	assert.strictEqual((await once(c, 'exit'))[1], 'SIGTERM');
	const f = child.fork(__filename, ['1', String(port)]);
	f.send('over a channel');
	assert.strictEqual((await once(f, 'message'))[0], 'OVER A CHANNEL');
	await once(f, 'exit');
}

async function workers() {
	const got = await Promise.all([1, 2, 3, 4].map(async (n) => (await once(new Worker(__filename, { workerData: n, argv: [String(times), String(port)] }), 'message'))[0]));
	assert.deepStrictEqual(got, [2, 4, 6, 8]);
	const shared = new Int32Array(new SharedArrayBuffer(4));
	Atomics.add(shared, 0, 1);
	new WebAssembly.Module(Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0)); // makes code at run time
}

async function network() {
	const server = http.createServer((q, r) => { q.pipe(r); });
	server.listen(port, 'localhost');
	await once(server, 'listening');
	for (let i = 0; i < Math.min(times, 20); i++) {
		const q = http.request({ host: 'localhost', port, method: 'POST', agent: false });
		q.end('body ' + i);
		const [answer] = await once(q, 'response');
		let got = '';
		for await (const part of answer) got += part;
		assert.strictEqual(got, 'body ' + i);
	}
	server.close();
	await once(server, 'close');
	const udp = dgram.createSocket('udp4');
	udp.bind(port + 1, '127.0.0.1');
	await once(udp, 'listening');
	udp.send('datagram', port + 1, '127.0.0.1');
	assert.strictEqual((await once(udp, 'message'))[0].toString(), 'datagram');
	udp.close();
}

async function rest() {
	assert(os.availableParallelism ? os.availableParallelism() >= 1 : true);
	assert(os.totalmem() > 0 && os.tmpdir() && os.hostname() !== undefined);
	os.userInfo();
	process.memoryUsage();
	process.cpuUsage();
	await new Promise((done) => setTimeout(done, 1));
	crypto.scryptSync('p', 's', 16);
	await new Promise((done, no) => crypto.pbkdf2('p', 's', 10, 16, 'sha256', (e) => e ? no(e) : done()));
}
