import classes from './TreeView.module.css'

const INDENT = 12

/** How deep a row of a tree is, with a line for each level. */
export function Indent({ depth }: { depth: number }) {
  return depth === 0 ? (
    <span style={{ width: 2, flex: 'none' }} />
  ) : (
    <span className={classes['indent']} style={{ width: depth * INDENT - 8 }} />
  )
}
