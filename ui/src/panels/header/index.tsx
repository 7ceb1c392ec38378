export function Header() {
  return <div className="fill" data-testid="panel-header" />
}
