export default function Tensors() {
  return <div className="fill" data-testid="panel-tensors" />
}
