# Variables that are not there, have no value, or the wrong one.
variable "broker" {
  type = string
}
variable "workers" {
  type    = number
  default = "many"
}
variable "topic" {
  defualt = "clicks"
}
variable "topic" {
  default = "clicks"
}
variable "dir" {
  default = var.topic
}
variable "hidden" {
  type = list(number)
}
job "ctr" {
  stream "kafka" {
    brokers = [var.brokers]
    topic   = var.topic
  }
  features {
    label  = "click"
    sparse = ["user", "item"]
  }
  model {
    hidden = var.hidden
    kind   = deepfm
  }
  workers {
    max = var.workers
    min = broker
  }
  throughput {
    theta = [0.0002, 0, 0]
  }
  checkpoint {
    dir = "${var.dri}/cp"
  }
  backend "local" {
  }
}
variable "typo" {
  type = nmber
}
