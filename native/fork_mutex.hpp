// A mutex that a forked child finds free, and the data behind it whole.
//
// A fork copies memory as it is at that instant: a lock that another thread holds would stay locked in the child for
// ever, and a step that it was writing stay half written. So the forking thread takes every such mutex first. None is
// ever taken while another is held, nor is the interpreter's lock taken under one, so this cannot deadlock.
#pragma once

#include <mutex>

namespace relive {

class ForkMutex {
  public:
    ForkMutex();
    ~ForkMutex();
    ForkMutex(const ForkMutex&) = delete;
    ForkMutex& operator=(const ForkMutex&) = delete;

    void lock() { mutex_.lock(); }
    bool try_lock() { return mutex_.try_lock(); }
    void unlock() { mutex_.unlock(); }

  private:
    std::mutex mutex_;
};

}  // namespace relive
