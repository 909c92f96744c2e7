# Two jobs, a job without a name, and what belongs inside a job.
max_lag = "20m"
jop "Click Rate" {
}
slo {
}
job {
}
pipeline "x" {
}
