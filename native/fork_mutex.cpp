#include "fork_mutex.hpp"

#include <algorithm>
#include <vector>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#define RELIVE_HAS_FORK 1
#else
#define RELIVE_HAS_FORK 0
#endif

namespace relive {
namespace {

// Never destroyed: tensors may give memory back while the interpreter exits.
struct Registry {
    std::mutex mutex;
    std::vector<ForkMutex*> all;
};

Registry& registry();

#if RELIVE_HAS_FORK
void lock_all() {
    Registry& r = registry();
    r.mutex.lock();
    for (ForkMutex* m : r.all) m->lock();
}

void unlock_all() {
    Registry& r = registry();
    for (ForkMutex* m : r.all) m->unlock();
    r.mutex.unlock();
}
#endif

Registry& registry() {
    static Registry* const instance = [] {
        auto* const made = new Registry;
#if RELIVE_HAS_FORK
        pthread_atfork(lock_all, unlock_all, unlock_all);
#endif
        return made;
    }();
    return *instance;
}

}  // namespace

ForkMutex::ForkMutex() {
    Registry& r = registry();
    const std::lock_guard guard(r.mutex);
    r.all.push_back(this);
}

ForkMutex::~ForkMutex() {
    Registry& r = registry();
    const std::lock_guard guard(r.mutex);
    r.all.erase(std::find(r.all.begin(), r.all.end(), this));
}

}  // namespace relive
