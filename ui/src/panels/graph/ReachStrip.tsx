import { ActionIcon, Text, Tooltip } from '@mantine/core'
import { IconArrowDown, IconArrowUp, IconX } from '~/parts/icons'
import { useTranslation } from 'react-i18next'
import css from './graph.module.css'
import { useMarks } from './marks'
import type { Picture } from './picture'
import { graphTexts } from './texts'

/** Names the part of the picture that is highlighted, with a button to clear it. */
export function ReachStrip({ picture }: { picture: Picture | undefined }) {
  const { t } = useTranslation(graphTexts)
  const reach = useMarks((marks) => marks.reach)
  const set = useMarks((marks) => marks.set)
  if (!reach) return null
  const label = picture?.boxes.find((box) => box.id === reach.from)?.label ?? ''
  return (
    <div className={css['strip']} role="status" data-testid="graph-reach">
      {reach.direction === 'up' ? <IconArrowUp size={14} /> : <IconArrowDown size={14} />}
      <Text truncate maw={320}>
        {reach.direction === 'up' ? t('reachUp', { label }) : t('reachDown', { label })}
      </Text>
      <Tooltip label={`${t('clear')} (Esc)`}>
        <ActionIcon size="sm" aria-label={t('clear')} onClick={() => set({ reach: null })}>
          <IconX size={13} />
        </ActionIcon>
      </Tooltip>
    </div>
  )
}
