// The Python face of the core: `relive._native`. It knows nothing of spaces or torch.
#include <nanobind/stl/optional.h>

#include "core.hpp"
#include "draws.hpp"
#include "gae.hpp"
#include "trees_module.hpp"

namespace relive {
namespace {

// Whether a NumPy array's fields lie where NumpyFields says, tried on an array of which all is known.
bool numpy_fields_match(nb::handle array, std::uintptr_t address, const std::vector<std::int64_t>& shape,
                        const std::vector<std::int64_t>& strides, nb::handle dtype) {
    const auto* const fields = reinterpret_cast<const NumpyFields*>(array.ptr());
    return sizeof(Py_ssize_t) == sizeof(std::int64_t) && reinterpret_cast<std::uintptr_t>(fields->data) == address &&
           fields->nd == static_cast<int>(shape.size()) && fields->descr == dtype.ptr() &&
           std::equal(shape.begin(), shape.end(), fields->dimensions) &&
           std::equal(strides.begin(), strides.end(), fields->strides);
}

nb::ndarray<nb::numpy, std::int64_t, nb::ndim<1>> draw(std::uint64_t bound, std::size_t size, Stream& stream) {
    require(bound > 0, "the bound of a draw is positive");
    std::vector<std::int64_t> out(size);
    {
        const Stream::Locked locked_stream(stream);
        draw_below(locked_stream.bits(), bound, size, out.data());
    }
    return to_numpy(std::move(out));
}

void compute_gae(const Floats& rewards, const Floats& values, const Floats& episode_starts, const Floats& last_values,
                 const Floats& dones, nb::ndarray<float, nb::c_contig, nb::device::cpu> advantages,
                 nb::ndarray<float, nb::c_contig, nb::device::cpu> returns, std::size_t steps, double gamma,
                 double gamma_lambda, bool wide_delta, bool wide_sum) {
    const std::size_t envs = last_values.size();
    const std::size_t total = steps * envs;
    require(rewards.size() == total && values.size() == total && episode_starts.size() == total,
            "inputs of (steps, envs)");
    require(dones.size() == envs, "dones and last_values of (envs,)");
    require(advantages.size() == total && returns.size() == total, "outputs of (steps, envs)");
    const Rollout rollout{steps,
                          envs,
                          rewards.data(),
                          values.data(),
                          episode_starts.data(),
                          last_values.data(),
                          dones.data(),
                          advantages.data(),
                          returns.data()};
    const nb::gil_scoped_release released;
    if (wide_delta) {
        gae<double, double>(rollout, gamma, gamma_lambda);
    } else if (wide_sum) {
        gae<float, double>(rollout, gamma, gamma_lambda);
    } else {
        gae<float, float>(rollout, gamma, gamma_lambda);
    }
}

// (strategy, sampled, achieved leaf, desired leaf)
using Goals = std::tuple<int, std::size_t, std::size_t, std::size_t>;
// (part, leaf)
using Windows = std::vector<std::pair<int, std::size_t>>;

void bind_draws(nb::module_& m) {
    nb::class_<StartRule>(m, "StartRule")
        .def(
            "__init__",
            [](StartRule* self, std::int64_t length, std::int64_t stride, bool padded, bool crossing,
               bool finished_only, bool looks_back) {
                require(length >= 1 && stride >= 1, "length and stride are positive");
                new (self) StartRule{length, stride, padded, crossing, finished_only, looks_back};
            },
            nb::arg("length") = 1, nb::arg("stride") = 1, nb::arg("padded") = true, nb::arg("crossing") = false,
            nb::arg("finished_only") = false, nb::arg("looks_back") = false);
    nb::class_<View>(m, "View").def(
        "__init__",
        [](View* self, std::int64_t n_steps, double gamma, std::int64_t time, const StartRule& rule,
           const std::optional<Goals>& goals, const Windows& windows, bool names_steps, std::int64_t burn_in,
           const std::optional<std::size_t>& own_gamma) {
            View view;
            view.names_steps = names_steps;
            require(burn_in >= 0, "burn_in is not negative");
            view.burn_in = burn_in;
            view.n_steps = n_steps;
            view.gamma = gamma;
            view.own_gamma = own_gamma;
            view.time = time;
            view.rule = rule;
            if (goals) {
                const auto& [strategy, sampled, achieved, desired] = *goals;
                require(strategy >= 0 && strategy <= 3, "no such strategy");
                view.goals = GoalRule{static_cast<GoalStrategy>(strategy), sampled, achieved, desired};
            }
            for (const auto& [part, leaf] : windows) {
                require(part >= 0 && part <= 5, "no such part");
                view.windows.push_back({static_cast<Part>(part), leaf});
            }
            new (self) View(std::move(view));
        },
        nb::arg("n_steps"), nb::arg("gamma"), nb::arg("time"), nb::arg("rule"), nb::arg("goals").none(),
        nb::arg("windows"), nb::arg("names_steps") = true, nb::arg("burn_in") = 0, nb::arg("own_gamma") = nb::none());
    nb::class_<UsualDraw>(m, "UsualDraw")
        .def(nb::init<nb::object, nb::object, nb::object, nb::object, nb::object, nb::object>(), nb::arg("draws"),
             nb::arg("stream"), nb::arg("view"), nb::arg("convert"), nb::arg("kind"), nb::arg("beta").none())
        .def("sample", &UsualDraw::sample, nb::arg("batch_size").none());
    nb::class_<Draws>(m, "Draws")
        .def(nb::init<nb::object>(), nb::arg("core"))
        .def("prioritize", &Draws::prioritize, nb::arg("kind"), nb::arg("alpha"), nb::arg("eps"), nb::arg("initial"),
             nb::arg("max_ever"), nb::arg("over_buffer"), nb::arg("most_uses"))
        .def("reconfigure", &Draws::reconfigure, nb::arg("alpha"), nb::arg("eps"), nb::arg("initial"),
             nb::arg("max_ever"), nb::arg("over_buffer"))
        .def_static("largest_priority", &Draws::largest_priority, nb::arg("kind"), nb::arg("alpha"), nb::arg("eps"),
                    nb::arg("slots"))
        .def("without_replacement", &Draws::without_replacement)
        .def("draw", &Draws::draw, nb::arg("batch_size").none(), nb::arg("stream"), nb::arg("view"), nb::arg("beta"),
             nb::arg("by"), nb::arg("convert"))
        .def("at", &Draws::at, nb::arg("handles"), nb::arg("view"), nb::arg("convert"))
        .def("count", &Draws::count, nb::arg("rule"))
        .def("set_priorities", &Draws::set_priorities, nb::arg("handles"), nb::arg("priorities"))
        .def("values", &Draws::values, nb::arg("handles"), nb::arg("kept") = false)
        .def("largest_given", &Draws::largest_given)
        .def("keeps_priorities", &Draws::keeps_priorities)
        .def("restore_values", &Draws::restore_values, nb::arg("handles"), nb::arg("values"), nb::arg("uses"),
             nb::arg("largest_given"), nb::arg("are_priorities"))
        .def("epochs", &Draws::epochs)
        .def("restore_epochs", &Draws::restore_epochs, nb::arg("epochs"))
        .def("clear_epochs", &Draws::clear_epochs)
        .def("pieces", &Draws::pieces);
}

}  // namespace
}  // namespace relive

namespace nb = nanobind;

NB_MODULE(_native, m) {
    using relive::bind_draws;
    using relive::Core;
    m.doc() = "The native core of relive; its Python face is the rest of the package.";
    nb::class_<relive::Stream>(m, "Stream").def(nb::init<nb::object, bool>(), nb::arg("source"), nb::arg("ask"));
    nb::class_<relive::Breaks>(m, "Breaks")
        .def(nb::init<bool, double>(), nb::arg("detect"), nb::arg("tolerance"))
        .def_ro("found", &relive::Breaks::found);
    nb::class_<Core>(m, "Core")
        .def(nb::init<std::size_t, std::size_t, relive::Bytes, std::size_t, const std::vector<relive::LeafArgument>&,
                      const std::vector<relive::LeafArgument>&, const std::vector<relive::LeafArgument>&,
                      const std::vector<std::size_t>&, std::vector<std::size_t>, bool, bool, nb::type_object,
                      const std::vector<std::tuple<nb::object, std::uint8_t, std::uint8_t>>&, bool>(),
             nb::arg("rows"), nb::arg("lanes"), nb::arg("records"), nb::arg("record_bytes"), nb::arg("observation"),
             nb::arg("action"), nb::arg("extra"), nb::arg("reward_shape"), nb::arg("offsets"),
             nb::arg("observation_is_tree"), nb::arg("action_is_tree"), nb::arg("array_type"), nb::arg("dtypes"),
             nb::arg("fields_are_known"))
        .def("append", &Core::append, nb::arg("observation").none(), nb::arg("successor").none(),
             nb::arg("action").none(), nb::arg("reward").none(), nb::arg("done").none(), nb::arg("timeout").none(),
             nb::arg("gymnasium_words"), nb::arg("infos").none(), nb::arg("mask").none(), nb::arg("strict"),
             nb::arg("steps"), nb::arg("extra").none(), nb::arg("breaks") = nb::none())
        .def("add_finals", &Core::add_finals, nb::arg("slots"), nb::arg("arrays"))
        .def("mind", &Core::mind, nb::arg("breaks").none())
        .def("interrupt", &Core::interrupt, nb::arg("lanes"))
        .def("clear", &Core::clear)
        .def("declare", &Core::declare, nb::arg("position"), nb::arg("count"))
        .def("compact", &Core::compact)
        .def("renew", &Core::renew)
        .def("assign_successors", &Core::assign_successors, nb::arg("values"))
        .def("assign_observation", &Core::assign_observation, nb::arg("leaf"), nb::arg("values"))
        .def("sample", &Core::sample, nb::arg("size"), nb::arg("stream"), nb::arg("convert"), nb::arg("nones") = 0)
        .def("transitions_at", &Core::transitions_at, nb::arg("rows"), nb::arg("lanes"), nb::arg("convert"))
        .def("transitions_of", &Core::transitions_of, nb::arg("handles"), nb::arg("convert"))
        .def("held_handles", &Core::held_handles, nb::arg("handles"))
        .def("all_handles", &Core::all_handles)
        .def("set_field", &Core::set_field, nb::arg("handles"), nb::arg("field"), nb::arg("values"))
        .def("successors", &Core::successors, nb::arg("leaf"), nb::arg("rows"), nb::arg("lanes"), nb::arg("out"))
        .def("lanes", &Core::lanes)
        .def("common", &Core::common)
        .def("held", &Core::held)
        .def("finals", &Core::finals)
        .def("arena_bytes", &Core::arena_bytes)
        .def("used", &Core::used)
        .def("snapshot", &Core::snapshot, nb::arg("rows"), nb::arg("high_water"), nb::arg("records"), nb::arg("large"),
             nb::arg("finals"))
        .def("restore", &Core::restore, nb::arg("heads"), nb::arg("counts"), nb::arg("begun"), nb::arg("high_water"));
    nb::class_<relive::Usual>(m, "Usual")
        .def(nb::init<nb::object, nb::object, nb::object, nb::object>(), nb::arg("core"), nb::arg("stream"),
             nb::arg("convert"), nb::arg("kind"))
        .def("add", &relive::Usual::add, nb::arg("observation").none(), nb::arg("successor").none(),
             nb::arg("action").none(), nb::arg("reward").none(), nb::arg("done").none(), nb::arg("infos").none(),
             nb::arg("strict"))
        .def("sample", &relive::Usual::sample, nb::arg("batch_size").none());
    bind_draws(m);
    m.def("numpy_fields_match", &relive::numpy_fields_match, nb::arg("array"), nb::arg("address"), nb::arg("shape"),
          nb::arg("strides"), nb::arg("dtype"));
    m.def("draw_below", &relive::draw, nb::arg("bound"), nb::arg("size"), nb::arg("stream"));
    m.def("gae", &relive::compute_gae, nb::arg("rewards"), nb::arg("values"), nb::arg("episode_starts"),
          nb::arg("last_values"), nb::arg("dones"), nb::arg("advantages"), nb::arg("returns"), nb::arg("steps"),
          nb::arg("gamma"), nb::arg("gamma_lambda"), nb::arg("wide_delta"), nb::arg("wide_sum"));
    relive::bind_trees(m);
}
