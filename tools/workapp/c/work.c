/* Ordinary work of programs in C: starts processes and threads in every way
 * that a C library knows, and uses what languages built on it use.
 *
 *	work FOLDER TIMES
 *
 * Prints "ok", or what could not be done. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static void fail(const char *what)
{
	printf("%s: %s\n", what, strerror(errno));
	exit(1);
}

static void check(int ok, const char *what)
{
	if (!ok)
		fail(what);
}

/* await wants a child that ended with a code. */
static void await(pid_t pid, int code, const char *what)
{
	int status;
	check(pid > 0, what);
	check(waitpid(pid, &status, 0) == pid, what);
	errno = 0;
	check(WIFEXITED(status) && WEXITSTATUS(status) == code, what);
}

static void forks(int times)
{
	for (int i = 0; i < times; i++) {
		pid_t pid = fork();
		if (pid == 0)
			_exit(i & 127);
		await(pid, i & 127, "fork");
	}
}

static pid_t vforked(char *self)
{
	char *args[] = {self, "exit", NULL};
	pid_t pid = vfork();
	if (pid == 0) {
		execv(self, args);
		_exit(127);
	}
	return pid;
}

static void vforks(int times, char *self)
{
	for (int i = 0; i < times; i++)
		await(vforked(self), 5, "vfork");
}

static void spawns(int times, char *self)
{
	char *args[] = {self, "exit", NULL};
	posix_spawnattr_t attr;
	posix_spawn_file_actions_t actions;
	check(posix_spawnattr_init(&attr) == 0 && posix_spawn_file_actions_init(&actions) == 0, "posix_spawn's settings");
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, 1, 2);
	for (int i = 0; i < times; i++) {
		pid_t pid;
		errno = posix_spawn(&pid, self, &actions, &attr, args, environ);
		check(errno == 0, "posix_spawn");
		await(pid, 5, "posix_spawn");
	}
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int counter;

static void *count(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&mutex);
	counter++;
	pthread_cond_signal(&cond);
	pthread_mutex_unlock(&mutex);
	return &counter;
}

static void threads(int times)
{
	pthread_t t[10];
	for (int done = 0; done < times; done += 10) {
		for (int i = 0; i < 10; i++) {
			errno = pthread_create(&t[i], NULL, count, NULL);
			check(errno == 0, "pthread_create");
		}
		for (int i = 0; i < 10; i++) {
			void *got;
			errno = pthread_join(t[i], &got);
			check(errno == 0 && got == &counter, "pthread_join");
		}
	}
	pthread_attr_t attr;
	pthread_attr_init(&attr);
	check(pthread_attr_setstacksize(&attr, 1 << 20) == 0, "stack size");
	check(pthread_create(&t[0], &attr, count, NULL) == 0 && pthread_join(t[0], NULL) == 0, "thread with attributes");
	check(counter >= times, "threads that counted");
}

static volatile sig_atomic_t caught;

static void catch(int sig) { caught += sig == SIGUSR1; }

static void sighandlers(void)
{
	struct sigaction a = {.sa_handler = catch, .sa_flags = SA_RESTART | SA_ONSTACK};
	stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
	sigset_t set, old;
	check(sigaltstack(&stack, NULL) == 0, "sigaltstack");
	check(sigaction(SIGUSR1, &a, NULL) == 0, "sigaction");
	check(raise(SIGUSR1) == 0 && kill(getpid(), SIGUSR1) == 0 && pthread_kill(pthread_self(), SIGUSR1) == 0, "signal to oneself");
	check(sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 1}) == 0, "sigqueue");
	check(caught == 4, "signals that were caught");
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	check(sigprocmask(SIG_BLOCK, &set, &old) == 0, "sigprocmask");
	check(kill(getpid(), SIGUSR2) == 0, "kill");
	check(sigwaitinfo(&set, NULL) == SIGUSR2, "sigwaitinfo");
	timer_t timer;
	struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2};
	struct itimerspec soon = {.it_value = {.tv_nsec = 1000}};
	check(timer_create(CLOCK_MONOTONIC, &ev, &timer) == 0 && timer_settime(timer, 0, &soon, NULL) == 0, "timer");
	check(sigwaitinfo(&set, NULL) == SIGUSR2 && timer_delete(timer) == 0, "signal of a timer");
	check(sigprocmask(SIG_SETMASK, &old, NULL) == 0, "sigprocmask");
}

/* shared uses what is for several processes: memory, semaphores, robust and
 * process-shared mutexes. */
static void shared(void)
{
	char name[64], semaphore[64];
	snprintf(name, sizeof name, "/work-%d", getpid());
	snprintf(semaphore, sizeof semaphore, "/semaphore-%d", getpid());
	int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
	check(fd >= 0, "shm_open");
	check(ftruncate(fd, 4096) == 0, "ftruncate of shared memory");
	int *n = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	check(n != MAP_FAILED, "mmap of shared memory");
	sem_t *sem = sem_open(semaphore, O_CREAT | O_EXCL, 0600, 0);
	check(sem != SEM_FAILED, "sem_open");
	pthread_mutexattr_t attr;
	pthread_mutex_t *m = (pthread_mutex_t *)(n + 16);
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	check(pthread_mutex_init(m, &attr) == 0, "shared mutex");
	pid_t pid = fork();
	if (pid == 0) {
		pthread_mutex_lock(m);
		*n = 42;
		sem_post(sem);
		_exit(0); /* with the mutex held */
	}
	check(sem_wait(sem) == 0 && *n == 42, "what the child wrote");
	await(pid, 0, "fork");
	check(pthread_mutex_lock(m) == EOWNERDEAD && pthread_mutex_consistent(m) == 0 && pthread_mutex_unlock(m) == 0, "robust mutex");
	check(sem_close(sem) == 0 && sem_unlink(semaphore) == 0 && shm_unlink(name) == 0, "unlink of shared memory");
}

static void folder(const char *dir)
{
	char name[4096];
	check(chdir(dir) == 0 && getcwd(name, sizeof name) != NULL, "chdir");
	strcpy(name, "tmp-XXXXXX");
	int fd = mkstemp(name);
	check(fd >= 0 && write(fd, "x", 1) == 1 && posix_fallocate(fd, 0, 8192) == 0 && fsync(fd) == 0, "mkstemp");
	struct stat st;
	check(fstat(fd, &st) == 0 && st.st_size == 8192, "posix_fallocate");
	check(lockf(fd, F_LOCK, 0) == 0 && lockf(fd, F_ULOCK, 0) == 0, "lockf");
	check(close(fd) == 0 && rename(name, "kept") == 0 && unlink("kept") == 0, "rename");
	FILE *f = tmpfile();
	check(f != NULL && fputs("x", f) >= 0 && fclose(f) == 0, "tmpfile");
	check(realpath(".", name) != NULL, "realpath");
	f = popen("exit 3", "r");
	check(f != NULL && pclose(f) == 3 << 8 && system("exit 4") == 4 << 8, "shell");
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "exit") == 0)
		return 5;
	if (argc != 3)
		return 2;
	int times = atoi(argv[2]);
	setvbuf(stdout, NULL, _IONBF, 0);
	folder(argv[1]);
	forks(times);
	vforks(times, argv[0]);
	spawns(times, argv[0]);
	threads(times);
	sighandlers();
	shared();
	check(getpriority(PRIO_PROCESS, 0) >= 0 || errno == 0, "getpriority");
	check(nice(1) != -1, "nice");
	check(sched_yield() == 0 && sysconf(_SC_NPROCESSORS_ONLN) >= 1, "processors");
	puts("ok");
	return 0;
}
