import classes from './TreeView.module.css'

const INDENT = 12

/** The indentation of a tree row, with a line for each level. */
export function Indent({ depth }: { depth: number }) {
  return depth === 0 ? (
    <span style={{ width: 2, flex: 'none' }} />
  ) : (
    <span className={classes['indent']} style={{ width: depth * INDENT - 8 }} />
  )
}
