import { ActionIcon, Tooltip, UnstyledButton } from '@mantine/core'
import { IconCheckbox, IconList, IconListTree, IconX } from '~/parts/icons'
import { useTranslation } from 'react-i18next'
import type { Watchpoint } from '~/api/types'
import { useConditionWords } from '~/parts/conditionWords'
import { count } from '~/parts/numbers'
import { useView } from '~/state/store'
import classes from './nodes.module.css'
import { MOST_IN_TREE } from './pages'
import { nodesTexts } from './texts'
import { useTreeState } from './treeState'

/** The watchpoint whose ticks the tree shows, with buttons to tick all nodes or none. */
export function TickStrip(props: {
  watchpoint: Watchpoint
  isFiltered: boolean
  locked: string | undefined
  onTickAll: (add: boolean) => void
}) {
  const { t } = useTranslation(nodesTexts)
  const set = useView((view) => view.set)
  const { watchpoint, isFiltered, locked } = props
  const words = useConditionWords()
  const name = words.label(watchpoint.condition)
  const buttons = [
    { add: true, label: t('tickAll'), hint: t(isFiltered ? 'tickFoundHint' : 'tickAllHint') },
    { add: false, label: t('tickNone'), hint: t(isFiltered ? 'tickNoFoundHint' : 'tickNoneHint') },
  ]
  return (
    <div className={classes['strip']} data-testid="tick-strip">
      <IconCheckbox size={13} aria-hidden />
      <span title={`${t('ticked', { watchpoint: name })}\n${words.sentence(watchpoint)}`}>
        <b>{name}</b> · {count(watchpoint.nodes)}
      </span>
      {buttons.map(({ add, label, hint }) => (
        <Tooltip key={label} label={locked ?? hint}>
          <UnstyledButton
            className={classes['small']}
            aria-disabled={locked !== undefined}
            onClick={() => {
              if (locked === undefined) props.onTickAll(add)
            }}
          >
            {label}
          </UnstyledButton>
        </Tooltip>
      ))}
      <Tooltip label={t('endTicks')}>
        <ActionIcon size="xs" aria-label={t('endTicks')} onClick={() => set({ watchpoint: null })}>
          <IconX size={12} />
        </ActionIcon>
      </Tooltip>
    </div>
  )
}

/** The number of nodes that match the filters, with a switch between tree and list. */
export function SearchStrip(props: { total: number | undefined; isTree: boolean; onClear: () => void }) {
  const { t } = useTranslation(nodesTexts)
  const isList = useTreeState((tree) => tree.isList)
  const set = useTreeState((tree) => tree.set)
  const { total, isTree } = props
  const isTooMany = total !== undefined && total > MOST_IN_TREE
  const hint = isTooMany
    ? t('tooManyForTree', { most: count(MOST_IN_TREE) })
    : t(isTree ? 'asList' : 'asTree')
  return (
    <div className={classes['strip']} role="status" data-testid="found-strip">
      <span>{total === undefined ? t('searching') : t('found', { count: total, total: count(total) })}</span>
      <UnstyledButton className={classes['small']} onClick={props.onClear}>
        {t('clearAll')}
      </UnstyledButton>
      <Tooltip label={hint} multiline maw={260}>
        <ActionIcon
          size="xs"
          aria-label={hint}
          aria-disabled={isTooMany}
          onClick={() => {
            if (!isTooMany) set({ isList: !isList })
          }}
        >
          {isTree ? <IconList size={13} /> : <IconListTree size={13} />}
        </ActionIcon>
      </Tooltip>
    </div>
  )
}
