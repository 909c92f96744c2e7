// Package job reads the HCL file in which an engineer describes one training job.
//
// Input: the source of a job file, and the values of its variables. Output: a Job, checked and with every default
// filled in, or diagnostics that say file, line, column and what to do, all of them at once. The schema in schema.go is
// the one description of the file: it drives decoding, defaults, "did you mean" and Reference.
//
// What a file alone cannot tell (does the topic exist?) is checked by whoever can ask; TopicDiagnostics, ErrorAt and
// Range point such findings at the right line of the file. The body of the backend block belongs to the backend's
// plugin and is handed on as bytes with their position.
//
// What a file leaves out:
//
//	attribute                                default
//	slo.max_lag                              "20m"
//	stream.start                             "latest"
//	stream.on_lost                           "stop"
//	stream.on_undecodable                    "stop"
//	stream.tls.insecure_skip_verify          false
//	features.format                          "json"
//	features.sparse                          []
//	features.dense                           []
//	model.kind                               "deepfm"
//	model.embedding_dim                      16
//	model.hidden                             [64, 32]
//	model.batch                              1024
//	model.mode                               "async"
//	model.linger                             "50ms"
//	model.l2                                 0
//	model.seed                               1
//	model.tablets                            64
//	model.optimiser.learning_rate            adagrad 0.05, adam 0.001, sgd 0.1
//	workers.min                              1
//	workers.gpus                             1
//	workers.cpu                              1
//	workers.memory                           "2GiB"
//	workers.emulate_step                     "0s"
//	workers.chunk                            64
//	workers.queue                            4 x model.batch
//	workers.forward                          "advanced"
//	servers.count                            1
//	servers.cpu                              1
//	servers.memory                           "2GiB"
//	throughput.form                          "async"
//	forecast.interval                        "1m"
//	forecast.horizon                         "30m"
//	forecast.season                          "24h"
//	forecast.timezone                        none: the clock is never changed
//	forecast.history                         "72h"
//	forecast.model                           "seasonal"
//	forecast.gate_window                     4 x horizon
//	forecast.gate_tolerance                  0.1
//	forecast.retrain                         never
//	forecast.events_fade                     true
//	forecast.holidays                        none
//	forecast.holidays_except                 none
//	forecast.holidays_like                   "sunday"
//	forecast.holidays_learn                  true
//	autoscale.policy                         "kale"
//	autoscale.mode                           "live"
//	autoscale.rho                            1
//	autoscale.tau                            "10m"
//	autoscale.cooldown_out                   "1m"
//	autoscale.cooldown_in                    "5m"
//	autoscale.headroom                       0.1
//	autoscale.tick                           "60s"
//	autoscale.watch                          "5s"
//	autoscale.place_timeout                  "10m"
//	autoscale.fallback.lag_over              half of slo.max_lag
//	autoscale.fallback.utilisation_over      0.9
//	autoscale.fallback.utilisation_under     0.3
//	checkpoint.every                         "10m"
//	checkpoint.keep                          2
//	network.listen                           the first free port from 7700, kept; none with backend "local"
//	network.advertise                        this machine's address on the interface, else on its route to a broker
//	network.ports                            any
//
// The names rho, tau and theta and the defaults marked with a section are those of Kale (SoCC '24).
package job
