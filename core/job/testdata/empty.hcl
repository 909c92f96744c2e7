# No job at all.
variable "unused" {
  default = 1
}
